package watchlimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestAWatchThatEndsAtOnceEachTimeIsOpenedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		open := Of(func(context.Context, metav1.ListOptions) (watch.Interface, error) { opened++; return nil, nil })
		began := time.Now()
		for range atOnce {
			_, _ = open(t.Context(), metav1.ListOptions{})
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("%d watches take %v", atOnce, took)
		}
		for range 60 {
			_, _ = open(t.Context(), metav1.ListOptions{})
		}
		if took := time.Since(began); took != time.Minute || opened != atOnce+60 {
			t.Errorf("60 more take %v, %d were opened", took, opened)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := open(over, metav1.ListOptions{}); err == nil || opened != atOnce+60 {
			t.Errorf("who has gone waits on: %v", err)
		}
	})
}
