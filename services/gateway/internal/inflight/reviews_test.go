package inflight

import "testing"

func TestReviewsHaveANumberInAllAndOfEachAddress(t *testing.T) {
	l := NewReviews(ReviewsConfig{Most: 3, MostOfOne: 2})
	first, second := l.Begin("10.0.0.1:1", false), l.Begin("10.0.0.1:2", false)
	if first == nil || second == nil || l.Begin("10.0.0.1:3", false) != nil {
		t.Error("an address has two reviews")
	}
	third := l.Begin("[::1]:1", false)
	if third == nil || l.Begin("10.0.0.3:1", false) != nil {
		t.Error("there are three in all")
	}
	first()
	if end := l.Begin("10.0.0.1:4", false); end == nil {
		t.Error("the place of one that ended stays taken")
	} else {
		end()
	}
	second()
	third()
	if len(l.byHost) != 0 || l.all != 0 {
		t.Errorf("%v and %d are left over", l.byHost, l.all)
	}
}

func TestAnIPv6NetworkOfAMachineIsOneAddress(t *testing.T) {
	l := NewReviews(ReviewsConfig{Most: 100, MostOfOne: 1})
	for address, begins := range map[string]bool{"[2001:db8:1:2::1]:1": true, "[2001:db8:1:3::1]:1": true, "10.0.0.1:1": true, "[fe80::1%eth0]:1": true} {
		if (l.Begin(address, false) != nil) != begins {
			t.Errorf("%s", address)
		}
	}
	for _, address := range []string{"[2001:db8:1:2:ffff::2]:9", "[::ffff:10.0.0.1]:2", "[fe80::2%eth1]:1"} {
		if l.Begin(address, false) != nil {
			t.Errorf("%s counts as another address", address)
		}
	}
}

func TestUnknownClientsOfAnAddressTakeNoPlaceFromTheKnownOfIt(t *testing.T) {
	l := NewReviews(ReviewsConfig{Most: 8, MostOfOne: 2, KnownOnly: 2})
	for l.Begin("10.0.0.1:1", false) != nil {
	}
	if l.Begin("10.0.0.1:2", true) == nil {
		t.Error("who is known has no place beside unknown clients behind the same address")
	}
}

func TestSomePlacesAreKeptForThoseWhoAreKnown(t *testing.T) {
	l := NewReviews(ReviewsConfig{Most: 4, MostOfOne: 4, KnownOnly: 1})
	for range 3 {
		if l.Begin("10.0.0.1:1", false) == nil {
			t.Fatal("there are three for unknown clients")
		}
	}
	if l.Begin("10.0.0.2:1", false) != nil {
		t.Error("an unknown client has the place that is kept")
	}
	if l.Begin("10.0.0.2:1", true) == nil {
		t.Error("who is known does not get it")
	}
	if l.Begin("10.0.0.3:1", true) != nil {
		t.Error("there are four in all")
	}
}
