"""Kind `http`: one request, made by the agent itself, on its own event loop.

    spec   core.work.requests
    result {"status", "headers", "json" or "text", "bytes", "seconds", "url"?, "is_cut"?}

    outgoing      the request, from spec and data; where an answer leads elsewhere, the next one
    connections   kept open and shared by all runs; every address is judged before it is connected to
    call          one attempt from its request to its result
    faults        why it came to nothing, in a sentence

What must stay true: every work leads to one call of `done`, after its output is stored and its connection is closed or
given back; nothing here waits on the event loop of the agent.
"""
