# Health check
curl http://localhost:8083/api/scheduler-worker/status

# Check assigned segments
curl http://localhost:8083/api/scheduler-worker/segments

# Check job details
curl http://localhost:8081/api/jobs/{id}

# Check Worker Agent status
curl http://localhost:8084/api/worker-agent/status

# Check segment distribution
curl http://localhost:8082/api/segments

# Check coordinator leader
curl http://localhost:8082/api/coordinator/leader

# Re-register worker
curl -X POST "http://localhost:8082/api/scheduler-workers/register?workerId=worker-1"

# Request segments again
curl -X POST "http://localhost:8082/api/segments/assign?workerId=worker-1&desiredSegments=10"
