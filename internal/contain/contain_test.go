package contain

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/polylet/polylet/internal/rpcerr"
)

var some map[string][]error

func TestAPanicIsAnErrorOfWhatWasDoneAndItsStackIsLogged(t *testing.T) {
	var log []string
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}))
	before := Seen()
	err := func() (err error) {
		defer Panic(ctx, "setting up volume data", &err)
		return some["a"][0]
	}()
	if !errors.Is(err, rpcerr.ErrInternal) || !strings.Contains(err.Error(), "setting up volume data panicked: runtime error: index out of range") {
		t.Errorf("the error is %v", err)
	}
	if Seen() != before+1 || len(log) != 1 || !strings.Contains(log[0], "TestAPanicIsAnErrorOfWhatWasDone") {
		t.Errorf("%d were seen; the log is %q", Seen()-before, log)
	}
}

func TestWhatDoesNotPanicHasItsOwnError(t *testing.T) {
	own, before := errors.New("its own"), Seen()
	err := func() (err error) {
		defer Panic(t.Context(), "it", &err)
		return own
	}()
	if err != own || Seen() != before {
		t.Errorf("the error is %v, %d were seen", err, Seen()-before)
	}
}
