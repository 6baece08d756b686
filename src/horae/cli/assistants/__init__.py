"""Horae for assistants: the command `mcp`, a server of the Model Context Protocol over /v1.

    server     who answers: lines in, lines out
    protocol   what a line asks, and what is answered: JSON-RPC, versions of the protocol
    tools      what an assistant may read            writing    what it may change, where that is allowed
    resources  job documents and logs, by address
    arguments  what a tool takes, checked            answers    what it gives, as text of bounded size

What must stay true: text of users and jobs is data inside a JSON string, and can end neither that string nor a line;
an answer has a greatest size, and says what it left out; nothing is changed unless that was allowed at the start.
"""
