"""Jobs: functions from tables of a trace to tables of results."""
