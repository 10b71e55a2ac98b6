package nodestatus

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
)

// hog is the one pod that there is.
func hog() *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hog", UID: "u"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
}

func (p *podsync) ListDesiredPods(context.Context, *podsyncv1.ListDesiredPodsRequest) (*podsyncv1.ListDesiredPodsResponse, error) {
	data, err := hog().Marshal()
	return &podsyncv1.ListDesiredPodsResponse{Epoch: 1, Revision: 1, Pods: [][]byte{data}}, err
}

func (p *podsync) StopPod(_ context.Context, r *podsyncv1.StopPodRequest) (*podsyncv1.StopPodResponse, error) {
	p.set(func(p *podsync) { p.stops = append(p.stops, r) })
	return &podsyncv1.StopPodResponse{}, nil
}

func (p *podsync) SetPressure(_ context.Context, r *podsyncv1.SetPressureRequest) (*podsyncv1.SetPressureResponse, error) {
	p.set(func(p *podsync) {
		p.pressure, p.told = r.GetConditions(), &podsyncv1.ToldPressure{Conditions: r.GetConditions(), Time: timestamppb.Now()}
	})
	return &podsyncv1.SetPressureResponse{}, nil
}

func (s *stats) GetSummary(context.Context, *statsv1.GetSummaryRequest) (*statsv1.GetSummaryResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	available, used := s.available, 8<<30-s.available
	data, err := json.Marshal(statsapi.Summary{
		Node: statsapi.NodeStats{Memory: &statsapi.MemoryStats{Time: metav1.Now(), AvailableBytes: &available, WorkingSetBytes: &used}},
		Pods: []statsapi.PodStats{{PodRef: statsapi.PodReference{UID: "u"}, Memory: &statsapi.MemoryStats{WorkingSetBytes: &used}}},
	})
	return &statsv1.GetSummaryResponse{SummaryJson: data}, err
}

func TestANodeThatIsShortOfMemoryTellsPodsyncAndHasItStopAPodAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		service, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		w.stats.setAvailable(50 << 20)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		w.podsync.set(func(p *podsync) {
			if len(p.stops) != 1 || p.stops[0].GetReason() != "Evicted" || p.stops[0].GetPod().GetUid() != "u" {
				t.Errorf("stopped: %v", p.stops)
			}
			if !slices.Equal(p.pressure, []string{"MemoryPressure"}) {
				t.Errorf("podsync was told %v", p.pressure)
			}
		})
		if c := w.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
			t.Errorf("the Node says %s", c.Status)
		}
		if !slices.Contains(w.events(), "EvictionThresholdMet") {
			t.Errorf("events %v", w.events())
		}
		resp, err := service.server.ListEvictionDecisions(t.Context(), &nodestatusv1.ListEvictionDecisionsRequest{})
		if err != nil || len(resp.GetDecisions()) != 1 || resp.GetDecisions()[0].GetChosen() != "default/hog" || len(resp.GetShortages()) != 1 {
			t.Errorf("%v, %v", resp, err)
		}
	})
}

func TestASoftThresholdIsAConditionAtOnceAndEvictsAfterItsGracePeriod(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.change = func(cfg *Config) {
			cfg.EvictionSoft, cfg.EvictionSoftGracePeriod = map[string]string{"memory.available": "1Gi"}, map[string]string{"memory.available": "1m"}
			cfg.EvictionMaxPodGracePeriod = 9 * time.Second
		}
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		w.stats.setAvailable(500 << 20)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		w.podsync.set(func(p *podsync) {
			if len(p.stops) > 0 || w.condition(v1.NodeMemoryPressure).Status != v1.ConditionTrue {
				t.Errorf("stopped %v", p.stops)
			}
		})
		time.Sleep(12 * time.Second)
		synctest.Wait()
		w.podsync.set(func(p *podsync) {
			if len(p.stops) != 1 || p.stops[0].GetGrace().AsDuration() != 9*time.Second {
				t.Errorf("stopped %v", p.stops)
			}
		})
	})
}

// The kubelet forgets pressure when it restarts.
func TestPressureOfBeforeARestartOfTheWholeAgentGoesWithTheFirstFigures(t *testing.T) {
	for name, away := range map[string]bool{"podsync is there": false, "podsync comes later": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				_, stop := w.start()
				time.Sleep(time.Minute)
				w.stats.setAvailable(50 << 20)
				time.Sleep(100 * time.Millisecond)
				if c := w.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
					t.Errorf("condition %+v; want pressure", c)
				}
				stop()
				w.podsync.set(func(p *podsync) { p.pressure, p.told = []string{"nothing"}, nil })
				w.stats.mu.Lock()
				w.stats.available = 4 << 30
				w.stats.mu.Unlock()
				if away {
					w.podsyncSrv.Down()
				}
				_, stop = w.start()
				defer stop()
				time.Sleep(7 * time.Second)
				if away {
					w.podsyncSrv.Up()
					time.Sleep(3 * time.Second)
				}
				synctest.Wait()
				if c := w.condition(v1.NodeMemoryPressure); c.Status != v1.ConditionFalse {
					t.Errorf("condition %+v; want none after the first figures", c)
				}
				w.podsync.set(func(p *podsync) {
					if len(p.pressure) != 0 {
						t.Errorf("podsync was told %v", p.pressure)
					}
				})
			})
		})
	}
}

func TestAPodsyncThatWasRestartedIsToldOfPressureAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.stats.available = 50 << 20
		_, stop := w.start()
		defer stop()
		time.Sleep(time.Minute)
		w.podsyncSrv.Down()
		time.Sleep(11 * time.Second) // The next question finds that it is away.
		w.podsync.set(func(p *podsync) { p.pressure, p.told = nil, nil })
		w.podsyncSrv.Up()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.podsync.set(func(p *podsync) {
			if !slices.Equal(p.pressure, []string{"MemoryPressure"}) {
				t.Errorf("podsync was told %v", p.pressure)
			}
		})
	})
}
