"""DeepSeek Harness: what its session headers and events mean, and putting the bridge module into a home of its."""
