package usage

import "testing"

func TestPagesAreReadFromTheRollup(t *testing.T) {
	rollup := "00400000-7ffc5be3f000 ---p 00000000 00:00 0  [rollup]\nRss:  20480 kB\nPss:  10240 kB\nPss_Dirty: 100 kB\nPss_Anon: 4096 kB\nPss_File:  6144 kB\nPss_Shmem: 0 kB\n"
	got, err := parsePages([]byte(rollup))
	if want := (Pages{PSS: 10, Anon: 4, File: 6}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestARollupWithoutItsLinesIsAnError(t *testing.T) {
	for _, rollup := range []string{"", "Pss: 10 kB\nPss_Anon: 4 kB\n", "Pss: x kB\nPss_Anon: 4 kB\nPss_File: 6 kB\n"} {
		if got, err := parsePages([]byte(rollup)); err == nil {
			t.Errorf("%q gave %+v", rollup, got)
		}
	}
}
