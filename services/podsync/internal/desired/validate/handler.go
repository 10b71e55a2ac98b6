package validate

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/polylet/polylet/services/podsync/internal/podutil"
)

// sources counts how many pointers of a one-of struct are set.
func sources(oneOf any) int {
	v := reflect.ValueOf(oneOf)
	n := 0
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}

// handlers checks probes and hooks, which an init container has only as a sidecar.
func (c *checker) handlers(at *field.Path, k *v1.Container, init bool) {
	if init && !podutil.Sidecar(k) {
		for name, set := range map[string]bool{
			"livenessProbe": k.LivenessProbe != nil, "readinessProbe": k.ReadinessProbe != nil, "startupProbe": k.StartupProbe != nil, "lifecycle": k.Lifecycle != nil,
		} {
			if set {
				c.forbidden(at.Child(name), "an init container has it only with restartPolicy: Always")
			}
		}
		return
	}
	c.probe(at.Child("livenessProbe"), k.LivenessProbe, true)
	c.probe(at.Child("readinessProbe"), k.ReadinessProbe, false)
	c.probe(at.Child("startupProbe"), k.StartupProbe, true)
	if k.Lifecycle == nil {
		return
	}
	c.hook(at.Child("lifecycle", "postStart"), k.Lifecycle.PostStart)
	c.hook(at.Child("lifecycle", "preStop"), k.Lifecycle.PreStop)
	if k.Lifecycle.StopSignal != nil && c.spec.OS == nil {
		c.forbidden(at.Child("lifecycle", "stopSignal"), "needs spec.os.name")
	}
}

// probe checks a probe; kills says whether its failure ends the container.
func (c *checker) probe(at *field.Path, p *v1.Probe, kills bool) {
	if p == nil {
		return
	}
	c.exactlyOne(at, sources(p.ProbeHandler))
	if kills && p.SuccessThreshold != 1 {
		c.invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	}
	for name, value := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		if value < 0 {
			c.invalid(at.Child(name), value, "must not be negative")
		}
	}
	if g := p.TerminationGracePeriodSeconds; g != nil {
		switch {
		case !kills:
			c.invalid(at.Child("terminationGracePeriodSeconds"), *g, "must not be set for readinessProbes")
		case *g <= 0:
			c.invalid(at.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0")
		}
	}
	c.action(at, p.Exec, p.HTTPGet, p.TCPSocket)
	if p.GRPC != nil {
		c.portNumber(at.Child("grpc", "port"), p.GRPC.Port)
	}
}

func (c *checker) exactlyOne(at *field.Path, handlers int) {
	switch {
	case handlers == 0:
		c.required(at, "must have one handler")
	case handlers > 1:
		c.forbidden(at, "may have only one handler; remove the others")
	}
}

func (c *checker) hook(at *field.Path, h *v1.LifecycleHandler) {
	if h == nil {
		return
	}
	c.exactlyOne(at, sources(*h))
	c.action(at, h.Exec, h.HTTPGet, h.TCPSocket)
	if grace := c.spec.TerminationGracePeriodSeconds; h.Sleep != nil && (h.Sleep.Seconds < 0 || grace != nil && h.Sleep.Seconds > *grace) {
		c.invalid(at.Child("sleep", "seconds"), h.Sleep.Seconds, "must not be negative and not more than terminationGracePeriodSeconds")
	}
}

func (c *checker) action(at *field.Path, exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction) {
	if exec != nil && len(exec.Command) == 0 {
		c.required(at.Child("exec", "command"), "name the program to run")
	}
	if get != nil {
		to := at.Child("httpGet")
		if get.Path == "" {
			c.required(to.Child("path"), "name the path to get")
		}
		c.port(to.Child("port"), get.Port)
		oneOf(c, to.Child("scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
		for i, h := range get.HTTPHeaders {
			c.named(to.Child("httpHeaders").Index(i), h.Name, validation.IsHTTPHeaderName(h.Name))
		}
	}
	if tcp != nil {
		c.port(at.Child("tcpSocket", "port"), tcp.Port)
	}
}

func (c *checker) port(at *field.Path, port intstr.IntOrString) {
	if port.Type == intstr.Int {
		c.portNumber(at, port.IntVal)
		return
	}
	c.named(at, port.StrVal, validation.IsValidPortName(port.StrVal))
}
