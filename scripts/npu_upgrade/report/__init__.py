"""The one HTML page of a job."""
