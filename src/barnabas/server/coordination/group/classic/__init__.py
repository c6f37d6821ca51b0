"""Groups with the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""
