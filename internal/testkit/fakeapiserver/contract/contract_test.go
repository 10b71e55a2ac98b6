package contract_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/polylet/polylet/internal/testkit/fakeapiserver"
	"github.com/polylet/polylet/internal/testkit/fakeapiserver/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheFakeKeepsTheContract(t *testing.T) {
	for _, c := range contract.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := fakeapiserver.New(fakeapiserver.Config{})
				defer s.Close()
				c.Run(t, s.Client(), "contract")
			})
		})
	}
}
