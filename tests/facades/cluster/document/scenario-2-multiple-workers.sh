# Register Worker 1
curl -X POST "http://localhost:8082/api/scheduler-workers/register?workerId=worker-1"
curl -X POST "http://localhost:8082/api/segments/assign?workerId=worker-1&desiredSegments=50"

# Register Worker 2
curl -X POST "http://localhost:8082/api/scheduler-workers/register?workerId=worker-2"
curl -X POST "http://localhost:8082/api/segments/assign?workerId=worker-2&desiredSegments=50"

# Submit jobs with different segments
# Worker 1 handles segments 0-49
# Worker 2 handles segments 50-99
