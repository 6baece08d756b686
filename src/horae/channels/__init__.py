"""How messages leave: by HTTP, by mail, by a command of whoever runs the server (ports.alerts)."""
