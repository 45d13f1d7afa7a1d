"""What tests of durable code need; production code never imports it."""
