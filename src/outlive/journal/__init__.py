"""Events to records and back: values, the record format, group commit."""
