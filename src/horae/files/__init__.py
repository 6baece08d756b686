"""The output store: what attempts write, in a local directory or in a bucket that all nodes share.

objects     logs and files as chunk objects, over any object store
output      what one attempt writes, cut into chunks
shipping    a store elsewhere, with a spool on this disk for the time that it is away
places      which store an address means
archive     rows of the audit log, taken to a bucket
"""

from horae.files.archive import Archive
from horae.files.objects import ObjectFiles
from horae.files.output import ChunkedOutput
from horae.files.places import open_bucket, open_files
from horae.files.shipping import ShippedFiles

__all__ = ["Archive", "ChunkedOutput", "ObjectFiles", "ShippedFiles", "open_bucket", "open_files"]
