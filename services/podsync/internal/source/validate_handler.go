package source

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
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

func validateHandlers(c *v1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateProbe(c.LivenessProbe, path.Child("livenessProbe"), true)...)
	errs = append(errs, validateProbe(c.ReadinessProbe, path.Child("readinessProbe"), false)...)
	errs = append(errs, validateProbe(c.StartupProbe, path.Child("startupProbe"), true)...)
	if c.Lifecycle == nil {
		return errs
	}
	errs = append(errs, validateHook(c.Lifecycle.PostStart, path.Child("lifecycle", "postStart"))...)
	return append(errs, validateHook(c.Lifecycle.PreStop, path.Child("lifecycle", "preStop"))...)
}

func validateProbe(p *v1.Probe, path *field.Path, onceIsEnough bool) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	if n := sources(p.ProbeHandler); n != 1 {
		errs = append(errs, field.Invalid(path, n, "must have exactly one of exec, httpGet, tcpSocket and grpc"))
	}
	if onceIsEnough && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	for name, value := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds, "periodSeconds": p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		if value < 0 {
			errs = append(errs, field.Invalid(path.Child(name), value, "must not be negative"))
		}
	}
	return append(errs, validateAction(p.Exec, p.HTTPGet, p.TCPSocket, path)...)
}

func validateHook(h *v1.LifecycleHandler, path *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	var errs field.ErrorList
	if n := sources(*h); n != 1 {
		errs = append(errs, field.Invalid(path, n, "must have exactly one of exec, httpGet, tcpSocket and sleep"))
	}
	return append(errs, validateAction(h.Exec, h.HTTPGet, h.TCPSocket, path)...)
}

func validateAction(exec *v1.ExecAction, get *v1.HTTPGetAction, tcp *v1.TCPSocketAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if exec != nil && len(exec.Command) == 0 {
		errs = append(errs, field.Required(path.Child("exec", "command"), "name the program to run"))
	}
	if get != nil {
		errs = append(errs, validatePort(get.Port, path.Child("httpGet", "port"))...)
		errs = append(errs, oneOf(path.Child("httpGet", "scheme"), get.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	}
	if tcp != nil {
		errs = append(errs, validatePort(tcp.Port, path.Child("tcpSocket", "port"))...)
	}
	return errs
}

func validatePort(port intstr.IntOrString, path *field.Path) field.ErrorList {
	if port.Type == intstr.Int {
		return named(path, port.String(), validation.IsValidPortNum(port.IntValue()))
	}
	return named(path, port.StrVal, validation.IsValidPortName(port.StrVal))
}
