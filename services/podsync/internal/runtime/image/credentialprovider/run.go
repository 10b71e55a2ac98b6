package credentialprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/polylet/polylet/internal/lifeline"
)

// Bounds on a plugin.
const (
	runTimeout = time.Minute
	// killWait is how long a killed plugin's pipes are waited for.
	killWait = 2 * time.Second
	// mostAnswer bounds what a plugin may write.
	mostAnswer = 1 << 20
	// mostComplaint is how much of its standard error is shown.
	mostComplaint = 1 << 10
)

// run runs a plugin's program once. The request goes through a pipe, so that no
// other process can see it, and the answer is shown to nobody.
func run(ctx context.Context, program string, p *kubeletconfigv1.CredentialProvider, req *credentialproviderv1.CredentialProviderRequest) (*credentialproviderv1.CredentialProviderResponse, error) {
	req.TypeMeta = metav1.TypeMeta{APIVersion: p.APIVersion, Kind: "CredentialProviderRequest"}
	input, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, p.Args...)
	cmd.Env = withoutSystemd(os.Environ())
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	answer, complaint := &bounded{most: mostAnswer}, &bounded{most: mostComplaint}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), answer, complaint
	// What the plugin has started ends with it, and it ends with this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
	if err := cmd.Run(); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("it did not end within %s: %w", runTimeout, err)
		}
		return nil, fmt.Errorf("%w%s", err, complaint.quoted())
	}
	if answer.over {
		return nil, fmt.Errorf("its answer is larger than %d bytes", mostAnswer)
	}
	return understand(answer.kept.Bytes(), p.APIVersion)
}

// withoutSystemd leaves out what the supervisor has told this process alone: by
// it a plugin could say that podsync is ready, or take its sockets.
func withoutSystemd(env []string) []string {
	return slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", lifeline.Variable:
			return true
		}
		return false
	})
}

// understand reads an answer. Errors must not show any of it.
func understand(data []byte, version string) (*credentialproviderv1.CredentialProviderResponse, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it answered nothing")
	}
	var out credentialproviderv1.CredentialProviderResponse
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, errors.New("its answer is not a CredentialProviderResponse in JSON")
	}
	if out.Kind != "CredentialProviderResponse" || out.APIVersion != version {
		return nil, fmt.Errorf("its answer must be a CredentialProviderResponse of %s, as the request was", version)
	}
	switch out.CacheKeyType {
	case credentialproviderv1.ImagePluginCacheKeyType, credentialproviderv1.RegistryPluginCacheKeyType, credentialproviderv1.GlobalPluginCacheKeyType:
		return &out, nil
	}
	return nil, errors.New("its answer has a cacheKeyType other than Image, Registry and Global")
}

// bounded keeps the first bytes that are written to it. The buffer is no
// embedded field: its ReadFrom would know no bound.
type bounded struct {
	kept bytes.Buffer
	most int
	over bool
}

func (b *bounded) Write(data []byte) (int, error) {
	n := len(data)
	if free := b.most - b.kept.Len(); n > free {
		b.over = true
		data = data[:max(0, free)]
	}
	b.kept.Write(data)
	return n, nil
}

// quoted is what was written as an appendix to an error; empty for nothing.
func (b *bounded) quoted() string {
	if text := strings.TrimSpace(b.kept.String()); text != "" {
		return fmt.Sprintf("; it complained: %q", text)
	}
	return ""
}
