package uds

import "testing"

func TestPassedSocketsAreFoundByNameAndOnlyForThisProcess(t *testing.T) {
	env := map[string]string{"LISTEN_PID": "42", "LISTEN_FDS": "3", "LISTEN_FDNAMES": "other:stats:polylet-probes.socket"}
	for _, tc := range []struct {
		pid  int
		name string
		fd   int
		ok   bool
	}{
		{42, "stats", 4, true},
		{42, "probes", 5, true},
		{42, "gateway", 0, false},
		{43, "stats", 0, false},
	} {
		fd, ok := passedFD(func(k string) string { return env[k] }, tc.pid, tc.name)
		if fd != tc.fd || ok != tc.ok {
			t.Errorf("pid %d name %s: %d %v, want %d %v", tc.pid, tc.name, fd, ok, tc.fd, tc.ok)
		}
	}
	env["LISTEN_FDS"] = "1"
	if _, ok := passedFD(func(k string) string { return env[k] }, 42, "stats"); ok {
		t.Error("a name beyond LISTEN_FDS was used")
	}
}
