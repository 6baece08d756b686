// A page that was still being worked out is read again.
setTimeout(() => location.reload(), 2000);
