package node_test

import (
	"bufio"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// twoLives ends once with code 3; its second life stays. The first two lines are
// more than a second apart, for options that count in seconds.
const twoLives = `if [ -f /state/once ]; then
echo alpha; sleep 3; echo beta; echo gamma; echo delta
touch /state/written
` + quiet + `
fi
touch /state/once; echo first life; exit 3`

func kubectlLogs(h *house) {
	p := shellPod("logger", twoLives)
	p.Labels = map[string]string{"app": "logger"}
	main := &p.Spec.Containers[0]
	main.Name = "main"
	main.VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state"}}
	// Ready is when all is written.
	main.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-f", "/state/written"}}}, PeriodSeconds: 1, TimeoutSeconds: 10,
	}
	p.Spec.Volumes = []corev1.Volume{{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	side := *main.DeepCopy()
	side.Name, side.ReadinessProbe = "side", nil
	side.Command = []string{"sh", "-c", "echo an error >&2; " + quiet}
	p.Spec.Containers = append(p.Spec.Containers, side)
	h.create(p)
	h.waitReady("logger", 2*time.Minute)

	all := "alpha\nbeta\ngamma\ndelta\n"
	h.eventually(time.Minute, "the log is whole", func() error {
		got := h.kubectlRan(nil, nil, "logs", "logger", "-c", "main")
		return boolError(got.code == 0 && got.stdout == all, "%+v", got)
	})
	h.prints(all, "logs", "logger") // the first container is meant
	h.prints("first life\n", "logs", "logger", "-c", "main", "--previous")
	h.prints("an error\n", "logs", "logger", "-c", "side")
	h.prints("an error\n", "logs", "logger", "side")
	h.prints("gamma\ndelta\n", "logs", "logger", "-c", "main", "--tail=2")
	h.prints("", "logs", "logger", "-c", "main", "--tail=0")
	h.prints(all, "logs", "logger", "-c", "main", "--tail=-1")
	h.prints("alpha\nbe", "logs", "logger", "-c", "main", "--limit-bytes=8")
	h.prints("gam", "logs", "logger", "-c", "main", "--tail=2", "--limit-bytes=3")
	h.prints(all, "logs", "logger", "-c", "main", "--since=1h")
	h.prints("an error\n", "logs", "-l", "app=logger", "-c", "side")
	if got := h.kubectlRan(nil, nil, "logs", "logger", "--all-containers", "--prefix"); !strings.Contains(got.stdout, "[pod/logger/main] beta\n") || !strings.Contains(got.stdout, "[pod/logger/side] an error\n") {
		h.Errorf("with a prefix: %+v", got)
	}
	kubectlLogTimes(h)
	h.fails(1, `previous terminated container "side" in pod "logger" not found`, "logs", "logger", "-c", "side", "--previous")
	h.fails(1, "container nosuch is not valid for pod logger", "logs", "logger", "-c", "nosuch")
	h.fails(1, `pods "nosuch" not found`, "logs", "nosuch")
	h.delete("logger")
}

// kubectlLogTimes looks at --timestamps, --since-time and --since.
func kubectlLogTimes(h *house) {
	got := h.kubectlRan(nil, nil, "logs", "logger", "-c", "main", "--timestamps")
	lines := regexp.MustCompile(`(?m)^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (alpha|beta|gamma|delta)$`).FindAllStringSubmatch(got.stdout, -1)
	if got.code != 0 || len(lines) != 4 || strings.Count(got.stdout, "\n") != 4 {
		h.Fatalf("with timestamps: %+v", got)
	}
	second, err := time.Parse(time.RFC3339Nano, lines[1][1])
	h.must(err)
	h.prints("beta\ngamma\ndelta\n", "logs", "logger", "-c", "main", "--since-time="+second.Truncate(time.Second).Format(time.RFC3339))
	h.eventually(time.Minute, "nothing is younger than a second", func() error {
		got := h.kubectlRan(nil, nil, "logs", "logger", "-c", "main", "--since=1s")
		return boolError(got.code == 0 && got.stdout == "", "%+v", got)
	})
}

func kubectlFollows(h *house) {
	p := shellPod("counter", "for i in $(seq 1 30); do echo $i; sleep 0.1; done; exit 4")
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	h.create(p)
	h.eventually(time.Minute, "counter runs", func() error {
		p, err := h.pod("counter")
		if err != nil {
			return err
		}
		return boolError(p.Status.Phase != corev1.PodPending, "%s", describe(p))
	})
	h.prints(numbers(30), "logs", "-f", "counter")
	// What has ended already is read to its end too.
	h.prints(numbers(30), "logs", "-f", "counter")
	h.delete("counter")

	h.create(shellPod("ticker", "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"))
	h.waitReady("ticker", time.Minute)
	cmd := h.kubectlCommand("logs", "-f", "--tail=1", "ticker")
	out, err := cmd.StdoutPipe()
	h.must(err)
	h.must(cmd.Start())
	lines := bufio.NewScanner(out)
	first := 0
	for i := range 20 {
		if !lines.Scan() {
			h.Errorf("the followed log ended after %d lines: %v", i, lines.Err())
			break
		}
		var n int
		if _, err := fmt.Sscan(lines.Text(), &n); err != nil || i > 0 && n != first+i {
			h.Errorf("line %d is %q, want %d", i, lines.Text(), first+i)
		}
		if i == 0 {
			first = n
		}
	}
	cmd.Process.Kill() // it follows for ever
	cmd.Wait()         // killed
	h.delete("ticker")
}
