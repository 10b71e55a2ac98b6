package supervise

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/polylet/polylet/internal/lifeline"
)

// sayOnce says what a service says at its start.
func sayOnce() {
	line, err := lifeline.Open(os.Getenv(lifeline.Variable))
	if err == nil {
		err = line.Say()
	}
	if err != nil {
		fmt.Println("say:", err)
	}
}

func TestAChildThatHangsIsStartedAgainAndSaysWhatItDid(t *testing.T) {
	out, stop := runAs(t, Config{StopWithin: 5 * time.Second, Watchdog: 300 * time.Millisecond}, Child{Name: "a", Args: does("hang")})
	out.await(t, "[a] SIGABRT", 1)
	out.await(t, "[a] goroutine ", 1)
	out.await(t, "ready", 2)
	stop()
}

func TestAChildThatIsFrozenIsKilled(t *testing.T) {
	out, stop := runAs(t, Config{StopWithin: 100 * time.Millisecond, Watchdog: 300 * time.Millisecond}, Child{Name: "a", Args: does("freeze")})
	out.await(t, "NoNewPrivs", 2)
	stop()
}

// A child that never said that it answers is starting, or is of an older version.
func TestAChildThatNeverSpokeIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats, done := make(chan struct{}), make(chan struct{})
		go func() {
			time.Sleep(24 * time.Hour)
			close(done)
		}()
		if silent(beats, done, time.Minute) {
			t.Error("it counts as hung")
		}
	})
}

func TestOnlySilenceCountsAsHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats, done := make(chan struct{}), make(chan struct{})
		begin := time.Now()
		go func() {
			for range 100 {
				beats <- struct{}{}
				time.Sleep(30 * time.Second)
			}
		}()
		if !silent(beats, done, time.Minute) {
			t.Fatal("it never counts as hung")
		}
		// The last word came after 99 times 30 s.
		if quiet := time.Since(begin) - 99*30*time.Second; quiet < 75*time.Second || quiet > 90*time.Second {
			t.Errorf("it counts as hung after %s of silence", quiet)
		}
	})
}

// A service asks itself every half of the watchdog's time, and waits for a quarter:
// on a busy machine one question in two is not answered, and the next one late.
func TestOneQuestionThatIsNotAnsweredIsNotHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beats, done := make(chan struct{}, 1), make(chan struct{})
		for n := range 1000 {
			late := time.Duration(n%2) * 14900 * time.Millisecond
			time.AfterFunc(time.Duration(n)*time.Minute+late, func() { beats <- struct{}{} })
		}
		time.AfterFunc(1000*time.Minute, func() { close(done) })
		if silent(beats, done, time.Minute) {
			t.Error("it counts as hung")
		}
	})
}
