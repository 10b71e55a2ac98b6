package listen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open runs a port until the test ends and returns its address.
func open(t *testing.T, limits Limits, dropped func(), h http.Handler) string {
	t.Helper()
	l := New(Config{Name: "secure", Address: "127.0.0.1:0", Handler: h, Limits: limits, Dropped: dropped})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-l.Ready()
	return l.Address()
}

// dialTo connects; what it returns is closed with the test.
func dialTo(t *testing.T, address string) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// speak sends a request on a connection and returns the answer's status line.
func speak(conn net.Conn, path string) (string, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return "", err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res.Status, err
}

// trusting trusts whoever asks for /known.
func trusting(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/known" {
		Trust(r.Context())
	}
	fmt.Fprint(w, "ok")
}

func TestAFloodThrowsOutUnknownClientsAndNobodyWhoIsKnown(t *testing.T) {
	limits := DefaultLimits()
	limits.Unknown = 8
	var dropped atomic.Int32
	address := open(t, limits, func() { dropped.Add(1) }, http.HandlerFunc(trusting))
	known := dialTo(t, address)
	if status, err := speak(known, "/known"); status != "200 OK" {
		t.Fatal(status, err)
	}
	var flood []net.Conn
	for range 100 {
		flood = append(flood, dialTo(t, address))
	}
	// The first of the flood was closed for the later ones.
	if _, err := flood[0].Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the oldest unknown client is still there: %v", err)
	}
	// Somebody new gets in, and who was known stays.
	if status, err := speak(dialTo(t, address), "/"); status != "200 OK" {
		t.Errorf("a new client during the flood: %q %v", status, err)
	}
	if status, err := speak(known, "/"); status != "200 OK" {
		t.Errorf("the known client during the flood: %q %v", status, err)
	}
	if n := dropped.Load(); n < 90 || n > 101 {
		t.Errorf("%d connections were dropped", n)
	}
}

func TestWhenAllPlacesAreTakenByTheKnownOneMoreIsRefused(t *testing.T) {
	limits := DefaultLimits()
	limits.Connections = 3
	address := open(t, limits, nil, http.HandlerFunc(trusting))
	var known []net.Conn
	for range 3 {
		conn := dialTo(t, address)
		if status, err := speak(conn, "/known"); status != "200 OK" {
			t.Fatal(status, err)
		}
		known = append(known, conn)
	}
	if status, err := speak(dialTo(t, address), "/known"); err == nil {
		t.Errorf("one too many: %q", status)
	}
	known[0].Close()
	deadline := time.Now().Add(30 * time.Second)
	for {
		if status, _ := speak(dialTo(t, address), "/known"); status == "200 OK" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of one who left stays taken")
		}
	}
	if status, err := speak(known[1], "/"); status != "200 OK" {
		t.Errorf("the known client: %q %v", status, err)
	}
}

func TestAClientThatSendsItsHeaderTooSlowlyIsCutOff(t *testing.T) {
	limits := DefaultLimits()
	limits.Header = 100 * time.Millisecond
	conn := dialTo(t, open(t, limits, nil, http.HandlerFunc(trusting)))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := io.ReadAll(conn); err != nil {
		t.Errorf("the connection was not closed: %v", err)
	}
	if took := time.Since(begin); took >= DefaultLimits().Header {
		t.Errorf("closed after %s", took)
	}
}

func TestAHeaderThatIsTooLargeIs431(t *testing.T) {
	limits := DefaultLimits()
	limits.PlainHeaderBytes = 4 << 10
	conn := dialTo(t, open(t, limits, nil, http.HandlerFunc(trusting)))
	// net/http takes 4 KiB more than it is told to.
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", 9<<10)); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if !strings.Contains(line, "431") {
		t.Errorf("%q %v", line, err)
	}
}

func TestASessionOutlivesTheTimeoutsOfItsPort(t *testing.T) {
	limits := DefaultLimits()
	limits.Body, limits.Idle, limits.Header = time.Second, time.Second, time.Second
	begun := make(chan struct{})
	speakUp := make(chan struct{})
	conn := dialTo(t, open(t, limits, nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		close(begun)
		<-speakUp
		fmt.Fprint(c, "still here")
	})))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-begun
	time.AfterFunc(2*limits.Body, func() { close(speakUp) })
	if got, err := io.ReadAll(conn); err != nil || string(got) != "still here" {
		t.Errorf("%q %v", got, err)
	}
}

// comes is a connection of an address at a door.
func comes(d *door, address string) (*visitor, net.Conn) {
	ours, theirs := net.Pipe()
	return d.enter(peerConn{ours, tcp(address)}), theirs
}

func cutOff(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestWhoHoldsMostPlacesMakesRoom(t *testing.T) {
	dropped := 0
	d := newDoor(nil, Limits{Connections: 100, Unknown: 4, KnownOfOne: 2}, func() { dropped++ })
	_, quiet := comes(d, "10.0.0.1")
	_, first := comes(d, "2001:db8::1")
	_, second := comes(d, "2001:db8::2") // of the same network
	_, third := comes(d, "2001:db8::3")
	for i, flood := range []net.Conn{first, second, third} {
		if _, c := comes(d, "2001:db8::9"); cutOff(c) || !cutOff(flood) || dropped != i+1 {
			t.Errorf("connection %d of the flood stays, %d were dropped", i, dropped)
		}
	}
	if cutOff(quiet) {
		t.Error("the oldest was thrown out though it holds one place only")
	}
}

func TestOneAddressIsKnownForSoManyConnectionsOnly(t *testing.T) {
	d := newDoor(nil, Limits{Connections: 100, Unknown: 2, KnownOfOne: 2}, func() {})
	var visitors []*visitor
	for range 3 {
		v, _ := comes(d, "10.0.0.1")
		v.trust()
		v.trust()
		visitors = append(visitors, v)
	}
	if d.unknown != 1 || d.hosts["10.0.0.1"].known != 2 {
		t.Errorf("%d unknown clients, %d known", d.unknown, d.hosts["10.0.0.1"].known)
	}
	for _, v := range visitors {
		v.Close()
	}
	if d.open != 0 || d.unknown != 0 || len(d.hosts) != 0 {
		t.Errorf("%d open, %d unknown clients, %v", d.open, d.unknown, d.hosts)
	}
}

func TestThoseWhoWereLetInByTokenLeavePlacesToWhoHasACertificate(t *testing.T) {
	d := newDoor(nil, Limits{Connections: 16, Unknown: 4, KnownOfOne: 4}, func() {})
	var all []*visitor
	for i := range 40 {
		v, _ := comes(d, fmt.Sprintf("10.0.0.%d", i%10))
		if v == nil {
			t.Fatalf("connection %d does not get in", i)
		}
		v.trust()
		all = append(all, v)
	}
	apiserver, _ := comes(d, "10.0.1.1")
	if apiserver == nil {
		t.Fatal("who has a certificate does not get in")
	}
	apiserver.certify("apiserver")
	apiserver.trust()
	for range 8 { // unknown clients throw out each other
		v, _ := comes(d, "10.0.1.2")
		all = append(all, v)
	}
	if apiserver.left || !apiserver.certified || d.byToken != 14 {
		t.Errorf("it was thrown out: %v; %d are known by a token", apiserver.left, d.byToken)
	}
	for _, v := range all {
		_ = v.Close()
	}
	if _ = apiserver.Close(); d.byToken != 0 || d.open != 0 {
		t.Errorf("%d and %d are left", d.byToken, d.open)
	}
}

func TestFewUnknownClientsWithACertificateMaySendLongHeaders(t *testing.T) {
	d := newDoor(nil, Limits{Connections: 1000, Unknown: 1000, KnownOfOne: 1000}, func() {})
	enter := func() *visitor {
		v, _ := comes(d, "10.0.0.1")
		return v
	}
	var all []*visitor
	for range mostLong {
		v := enter()
		if all = append(all, v); !v.certify(fmt.Sprint(len(all) % 2)) {
			t.Fatalf("the %dth may not", len(all))
		}
	}
	next := enter()
	if next.certify("another") {
		t.Error("one more may")
	}
	all[0].trust() // who is authorised makes room
	if !next.certify("another") {
		t.Error("when one of them is known, the next may not")
	}
	if other := enter(); other.certify("another") {
		t.Error("another may, too")
	} else if _ = all[1].Close(); !other.certify("another") {
		t.Error("when one of them has left, the next may not")
	}
	for _, v := range append(all, next) {
		_ = v.Close()
	}
	if d.long != 1 || len(d.byName) != 1 {
		t.Errorf("%d and %v are counted, want 1", d.long, d.byName)
	}
	for n := range mostOfOneName {
		if v := enter(); v.certify("one") != (n < mostOfOneName) {
			t.Errorf("the %dth of one name", n+1)
		}
	}
	if enter().certify("one") {
		t.Error("one name has all places")
	}
	if !enter().certify("apiserver") {
		t.Error("another name has none")
	}
}

// TestOnlyAGoodCertificateNamesSomebody: a certificate that nobody verified, shown beside
// a token that is good, would have what its sender holds counted as another's.
func TestOnlyAGoodCertificateNamesSomebody(t *testing.T) {
	d := newDoor(nil, DefaultLimits(), func() {})
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	of := func(v *visitor) string {
		name, known := Whose(withVisitor(t.Context(), v))
		return fmt.Sprint(name, known)
	}
	certified, unknown := d.enter(here), d.enter(there)
	certified.certify("apiserver")
	if of(certified) != "apiservertrue" || of(unknown) != "false" {
		t.Errorf("before they are authorised: %q and %q", of(certified), of(unknown))
	}
	certified.trust()
	unknown.trust()
	if of(certified) != "apiservertrue" || of(unknown) != "true" {
		t.Errorf("after: %q and %q", of(certified), of(unknown))
	}
	if name, known := Whose(t.Context()); name != "" || known {
		t.Errorf("of no connection: %q, %v", name, known)
	}
}

// TestWhoHasAGoodCertificateIsKnownThoughOthersSendLongHeaders: an apiserver that opens
// many connections at once was an unknown client on most of them, whom a flood of unknown
// clients keeps out.
func TestWhoHasAGoodCertificateIsKnownThoughOthersSendLongHeaders(t *testing.T) {
	d := newDoor(nil, Limits{Connections: 1000, Unknown: 1000, KnownOfOne: mostOfOneName}, func() {})
	for n := range 3 * mostOfOneName {
		v, _ := comes(d, "10.0.0.1")
		v.certify("apiserver")
		if name, known := Whose(withVisitor(t.Context(), v)); name != "apiserver" || !known {
			t.Errorf("connection %d: %q, %v", n+1, name, known)
		}
	}
}

// TestWhoIsAuthorisedTakesNoPlaceForLongHeaders: not even one of an address that has all
// connections that count as known.
func TestWhoIsAuthorisedTakesNoPlaceForLongHeaders(t *testing.T) {
	d := newDoor(nil, Limits{Connections: 1000, Unknown: 1000, KnownOfOne: 2}, func() {})
	for n := range 3 * mostOfOneName {
		v, _ := comes(d, "10.0.0.1")
		if !v.certify("apiserver") {
			t.Errorf("connection %d may send no long headers", n+1)
		}
		v.trust()
	}
}

// TestWhoHasAGoodCertificateIsNotThrownOutBeforeItIsAuthorised: who floods from the
// apiserver's own address, as a pod of its host does, threw it out while it was asked
// whether it may.
func TestWhoHasAGoodCertificateIsNotThrownOutBeforeItIsAuthorised(t *testing.T) {
	d := newDoor(nil, Limits{Connections: 1000, Unknown: 4, KnownOfOne: 2}, func() {})
	var known []*visitor
	for range 2 { // and others of its address have all places of the known
		v, _ := comes(d, "10.0.0.1")
		v.trust()
		known = append(known, v)
	}
	apiserver, conn := comes(d, "10.0.0.1")
	apiserver.certify("apiserver")
	flood := func() {
		for range 100 {
			comes(d, "10.0.0.1")
		}
	}
	flood()
	if cutOff(conn) {
		t.Fatal("it is thrown out before it is authorised")
	}
	apiserver.trust()
	flood()
	if cutOff(conn) {
		t.Fatal("it is thrown out for others of its address")
	}
	_ = known[0].Close()
	apiserver.trust()
	apiserver.trust()
	if d.kept != 0 || len(d.keptOf) != 0 || d.hosts["10.0.0.1"].known != 2 {
		t.Errorf("it is known: %d are kept, %v, %d known", d.kept, d.keptOf, d.hosts["10.0.0.1"].known)
	}
	_, _ = apiserver.Close(), known[1].Close()
	apiserver.trust()
	if d.open != 4 || d.unknown != 4 || d.hosts["10.0.0.1"].known != 0 {
		t.Errorf("%d open, %d unknown clients, %d known", d.open, d.unknown, d.hosts["10.0.0.1"].known)
	}
}

func TestFewAreKeptForTheirCertificates(t *testing.T) {
	d := newDoor(nil, Limits{Connections: 1000, Unknown: 4, KnownOfOne: 2}, func() {})
	var all []*visitor
	for name := range 10 {
		for range 2 * mostKeptOfName {
			v, _ := comes(d, fmt.Sprintf("10.0.0.%d", name))
			v.certify(fmt.Sprint(name))
			all = append(all, v)
		}
		if want := min((name+1)*mostKeptOfName, mostKept); d.kept != want || d.open > want+4 {
			t.Fatalf("of %d names %d are kept and %d open", name+1, d.kept, d.open)
		}
	}
	for _, v := range all {
		_ = v.Close()
	}
	if d.open != 0 || d.unknown != 0 || d.kept != 0 || len(d.keptOf) != 0 || len(d.hosts) != 0 {
		t.Errorf("%d open, %d unknown clients, %d kept, %v, %v", d.open, d.unknown, d.kept, d.keptOf, d.hosts)
	}
}

func TestAGreetingIsShortAndWhatFollowsIsNot(t *testing.T) {
	d := newDoor(nil, DefaultLimits(), func() {})
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	v := d.enter(here)
	go func() {
		for {
			if _, err := there.Write(make([]byte, longestGreeting)); err != nil {
				return
			}
		}
	}()
	all := make([]byte, longestGreeting)
	for range 2 {
		if _, err := io.ReadFull(v, all); err != nil {
			t.Errorf("of a connection where no hands are shaken: %v", err)
		}
	}
	v.greeting.Store(true)
	if _, err := io.ReadFull(v, all); err != nil {
		t.Errorf("as long as a greeting may be: %v", err)
	}
	if _, err := v.Read(all); !errors.Is(err, errLongGreeting) {
		t.Errorf("a longer one: %v", err)
	}
	v.greeting.Store(false)
	if _, err := io.ReadFull(v, all); err != nil {
		t.Errorf("after the greeting: %v", err)
	}
}
