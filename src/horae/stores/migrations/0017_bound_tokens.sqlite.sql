-- before the code: the node, kinds and labels that a token of an agent is good for, as JSON. Those made before have none.
ALTER TABLE tokens ADD COLUMN bound TEXT;
