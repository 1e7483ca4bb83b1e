"""Tool calls of agent chats with known answers."""
