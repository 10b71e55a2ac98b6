package contract

import (
	"context"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var processCases = []Case{
	{"an exit code becomes a reason", func(k *kit) {
		id, cfg := k.sandbox()
		good := k.create(id, cfg, "good", "exit", "code=0")
		bad := k.create(id, cfg, "bad", "exit", "code=3", "after=100ms")
		k.works("start", k.tryStart(good))
		began := time.Now() // the runtime notes its start when it has already run for a while
		k.works("start", k.tryStart(bad))
		st := k.ended(good)
		k.equal("reason", st.GetReason(), "Completed")
		st = k.ended(bad)
		k.equal("reason", st.GetReason(), "Error")
		k.equal("exit code", st.GetExitCode(), int32(3))
		k.equal("it took its time", time.Duration(st.GetFinishedAt()-began.UnixNano()) >= 100*time.Millisecond, true)
	}},
	{"a process that ignores TERM is killed at the timeout", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "stubborn")
		k.logged(k.status(c).GetLogPath(), "ignoring SIGTERM")
		began := time.Now()
		k.stop(c, 1)
		k.equal("it had its second", time.Since(began) >= time.Second, true)
		st := k.status(c)
		k.equal("exit code", st.GetExitCode(), int32(137))
		k.equal("reason", st.GetReason(), "Error")
	}},
	{"a container that ends takes its exec along", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "exit", "after=2s")
		resp, err := k.exec(c, 0, "sleep")
		// A runtime that takes the shim down before it read the exec's end says
		// so with an error (containerd 1.6 does, now and then); the others give
		// the exit code of the kill.
		k.equal("the exec ended with its container, by a kill or an error",
			err != nil || resp.GetExitCode() == 137, true)
		k.equal("exit code of the container", k.ended(c).GetExitCode(), int32(0))
	}},
	{"a timeout of zero kills at once", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		k.stop(c, 0)
		k.equal("exit code", k.status(c).GetExitCode(), int32(137))
	}},
	{"a stop that its caller gives up kills nobody", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "stubborn")
		k.logged(k.status(c).GetLogPath(), "ignoring SIGTERM")
		ctx, cancel := context.WithTimeout(k.ctx, time.Second)
		defer cancel()
		_, err := k.rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 3})
		k.fails("stop", err, codes.DeadlineExceeded, "")
		time.Sleep(4 * time.Second)
		k.equal("state", k.status(c).GetState(), runtimeapi.ContainerState_CONTAINER_RUNNING)
		k.stop(c, 1)
		k.equal("exit code of the second stop", k.status(c).GetExitCode(), int32(137))
	}},
	{"a program that cannot start leaves an exited container", func(k *kit) {
		id, cfg := k.sandbox()
		cc := k.containerConfig("app")
		cc.Command = []string{"/does-not-exist"}
		c, err := k.tryCreate(id, cfg, cc)
		k.works("create", err)
		k.fails("start", k.tryStart(c), codes.Unknown, "does-not-exist")
		st := k.status(c)
		k.equal("state", st.GetState(), runtimeapi.ContainerState_CONTAINER_EXITED)
		k.equal("reason", st.GetReason(), "StartError")
		k.equal("exit code", st.GetExitCode(), int32(128))
		k.equal("message names the program", strings.Contains(st.GetMessage(), "does-not-exist"), true)
	}},
	{"exec gives output and exit code, and keeps its timeout", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		resp, err := k.exec(c, 10, "stat", "path=/testapp")
		k.works("exec", err)
		k.equal("output", strings.Contains(string(resp.GetStdout()), "mode=0755"), true)
		resp, err = k.exec(c, 10, "false")
		k.works("exec false", err)
		k.equal("exit code", resp.GetExitCode(), int32(1))
		resp, err = k.exec(c, 10, "exit", "code=42")
		k.works("exec exit", err)
		k.equal("exit code", resp.GetExitCode(), int32(42))
		_, err = k.exec(c, 1, "stubborn")
		k.fails("exec that takes too long", err, codes.DeadlineExceeded, "timeout 1s exceeded")
		_, err = k.rt.ExecSync(k.ctx, &runtimeapi.ExecSyncRequest{ContainerId: c, Cmd: []string{"/does-not-exist"}, Timeout: 10})
		k.fails("exec of nothing", err, codes.Unknown, "does-not-exist")
		k.stop(c, 5)
		_, err = k.exec(c, 1, "true")
		k.fails("exec after the end", err, codes.Unknown, "CONTAINER_EXITED state")
	}},
	{"output goes to the log file, which can be reopened", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "stubborn")
		path := k.status(c).GetLogPath()
		k.logged(path, " stdout F ignoring SIGTERM")
		k.works("rename", os.Rename(path, path+".1"))
		_, err := k.rt.ReopenContainerLog(k.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c})
		k.works("reopen", err)
		_, err = os.Stat(path)
		k.works("the new file", err)
		k.stop(c, 0)
		_, err = k.rt.ReopenContainerLog(k.ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: c})
		k.fails("reopen after the end", err, codes.Unknown, "not running")
	}},
	{"a log directory that is not there is made", func(k *kit) {
		id, cfg := k.sandbox()
		cc := k.containerConfig("app", "stubborn")
		cc.LogPath = "not/there/0.log"
		c, err := k.tryCreate(id, cfg, cc)
		k.works("create", err)
		k.works("start", k.tryStart(c))
		k.logged(k.status(c).GetLogPath(), "ignoring SIGTERM")
	}},
	{"streams are URLs, for what runs only", func(k *kit) {
		id, cfg := k.sandbox()
		c := k.running(id, cfg, "app", "sleep")
		exec, err := k.rt.Exec(k.ctx, &runtimeapi.ExecRequest{ContainerId: c, Cmd: []string{"/testapp", "true"}, Stdout: true})
		k.works("exec", err)
		k.equal("exec URL", strings.HasPrefix(exec.GetUrl(), "http://127.0.0.1:"), true)
		attach, err := k.rt.Attach(k.ctx, &runtimeapi.AttachRequest{ContainerId: c, Stdout: true})
		k.works("attach", err)
		k.equal("attach URL", strings.HasPrefix(attach.GetUrl(), "http://127.0.0.1:"), true)
		forward, err := k.rt.PortForward(k.ctx, &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: []int32{80}})
		k.works("port forward", err)
		k.equal("forward URL", strings.HasPrefix(forward.GetUrl(), "http://127.0.0.1:"), true)
		k.stop(c, 5)
		_, err = k.rt.Exec(k.ctx, &runtimeapi.ExecRequest{ContainerId: c, Cmd: []string{"/testapp", "true"}, Stdout: true})
		k.fails("exec after the end", err, codes.Unknown, "CONTAINER_EXITED state")
	}},
}

// logged waits until a log file holds a text.
func (k *kit) logged(path, text string) {
	k.t.Helper()
	k.eventually(path+" holds "+text, func() bool {
		data, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(data), text)
	})
}
