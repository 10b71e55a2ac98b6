package contract_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/polylet/polylet/internal/testkit/fakecri"
	"github.com/polylet/polylet/internal/testkit/fakecri/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	app     = "registry.local/testapp:v1"
	other   = "registry.local/testapp:v2"
	missing = "registry.local/missing:v1"
)

func play(t *testing.T, old, direct bool) {
	for _, c := range contract.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			logs := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				rt := fakecri.New(fakecri.Config{
					Registry: map[string]fakecri.RemoteImage{app: {}, other: {}}, Script: contract.TestApp, WriteLogs: true,
					Containerd16: old,
				})
				defer rt.Close()
				dialled, err := rt.Dial(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer dialled.Close()
				var conn grpc.ClientConnInterface = dialled
				if direct {
					conn = rt.Direct()
				}
				c.Run(t, contract.Target{
					Conn: conn, Image: app, Other: other, Missing: missing, LogDir: logs, Containerd16: old,
				})
			})
		})
	}
}

func TestTheFakeKeepsTheContract(t *testing.T) { play(t, false, false) }

func TestTheFakeOfAnOldRuntimeKeepsTheContract(t *testing.T) { play(t, true, false) }

func TestTheFakeWithoutATransportKeepsTheContract(t *testing.T) { play(t, false, true) }
