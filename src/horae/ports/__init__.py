"""Every seam of the system. The docstrings are the contract; tests/contract checks them.

store       state: jobs, due moments, live runs, history, nodes, leases, secrets, tokens  (stores/)
transport   queues, links, and other ways between processes                              (queues/, links/)
work        executors, the keeper, sandboxes                                             (executors/, sandboxes/)
outputs     what attempts write                                                          (files/)
keys        what seals secrets                                                           (keys)
clock       time
"""
