# Step 1: Submit a job (due now)
curl -X POST http://localhost:8081/api/jobs \
  -H "Content-Type: application/json" \
  -d '{
    "jobName": "Test Job",
    "userId": 1,
    "frequency": "ONE_TIME",
    "executionTime": "2024-12-31T10:00:00Z",
    "payload": "Test payload",
    "maxRetries": 3,
    "segment": 5
  }'

# Step 2: Register worker with coordinator
curl -X POST "http://localhost:8082/api/scheduler-workers/register?workerId=worker-1"

# Step 3: Request segment assignment (must include segment 5)
curl -X POST "http://localhost:8082/api/segments/assign?workerId=worker-1&desiredSegments=10"

# Step 4: Wait for scan cycle (60 seconds)
# Or manually trigger scan (if debug endpoint available)

# Step 5: Check job status (should be SCHEDULED)
curl http://localhost:8081/api/jobs/1
