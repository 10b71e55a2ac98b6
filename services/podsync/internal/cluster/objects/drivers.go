package objects

// FollowDriver watches what the cluster says of a CSI driver until LeaveDriver, also
// while no pod refers to it.
func (s *Store) FollowDriver(name string) {
	if s.client == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := Key{Kind: CSIDriver, Name: name}
	e := s.entryForLocked(key)
	e.pinned = true
	s.startWatchLocked(key, e)
}

// LeaveDriver ends FollowDriver.
func (s *Store) LeaveDriver(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := Key{Kind: CSIDriver, Name: name}
	if e := s.entries[key]; e != nil {
		e.pinned = false
		s.dropLocked(key, "")
	}
}
