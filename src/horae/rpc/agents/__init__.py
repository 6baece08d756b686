"""The server's end of the link with remote agents. It calls the service, and so it stands above `links`, their end."""
