# Submit daily recurring job
curl -X POST http://localhost:8081/api/jobs \
  -H "Content-Type: application/json" \
  -d '{
    "jobName": "Daily Report",
    "userId": 1,
    "frequency": "DAILY",
    "executionTime": "2024-12-31T09:00:00Z",
    "payload": "Generate report",
    "maxRetries": 3,
    "segment": 10
  }'

# After first execution:
# - Job status resets to PENDING
# - next_run_time updated to next day
# - Scanner picks it up again next day
