package nodepage

import (
	"strings"
	"time"
)

// What the page shows at most. Nodestatus keeps some more, which polylet explain node shows.
const (
	mostShortages  = 20
	mostDecisions  = 20
	mostCandidates = 10
	// mostWords bounds a sentence, in bytes: it may quote somebody else's error.
	mostWords = 600
	// silent is after how long without signals what they said is no longer taken for what
	// is: stats sends some every ten seconds.
	silent = 30 * time.Second
)

// Shortages is what the node is short of, and what was decided about it.
type Shortages struct {
	// Measured is when the signals were; nil when nodestatus has heard of none since it
	// began to run, at Began.
	Measured *time.Time `json:"measured,omitempty"`
	Began    *time.Time `json:"began,omitempty"`
	// Stale says that this was too long ago to say what the node is short of now.
	Stale bool `json:"stale,omitempty"`
	// Short are those whose grace period runs, too, last.
	Short []Shortage `json:"short"`
	// Decisions are the newest, the newest first; More is how many are left out.
	Decisions []Decision `json:"decisions"`
	More      int        `json:"more,omitempty"`
}

// Shortage is a threshold, or a limit of a pod's local storage, that is met.
type Shortage struct {
	Signal string `json:"signal"`
	// Limit says that Threshold is what may be used and Available what is.
	Limit     bool   `json:"limit,omitempty"`
	Threshold string `json:"threshold"`
	Available string `json:"available"`
	Hard      bool   `json:"hard,omitempty"`
	// Since is nil for a limit.
	Since *time.Time `json:"since,omitempty"`
	// Due is when its grace period is over; nil when nothing is waited for.
	Due *time.Time `json:"due,omitempty"`
}

// Decision is what was done about a shortage, and why.
type Decision struct {
	Time time.Time `json:"time"`
	// First is when the same was decided for the first time in a row, and Count how often.
	First    *time.Time `json:"first,omitempty"`
	Count    uint32     `json:"count,omitempty"`
	Shortage Shortage   `json:"shortage"`
	// Counted says that the candidates' figures are numbers of things; else they are bytes.
	Counted bool `json:"counted,omitempty"`
	// Outcome is evicted, reclaimed, nobody, held, hastened or refused.
	Outcome string `json:"outcome"`
	Why     string `json:"why"`
	// Reclaimed is nil when nothing was tried.
	Reclaimed *Reclaimed `json:"reclaimed,omitempty"`
	// Chosen is nil when no pod was; it has Grace seconds to end.
	Chosen *PodName `json:"chosen,omitempty"`
	Grace  float64  `json:"grace,omitempty"`
	// Candidates are the pods that were considered, the first to go first; More is how many
	// are left out.
	Candidates []Candidate `json:"candidates"`
	More       uint32      `json:"more,omitempty"`
}

// Reclaimed is what was freed before a pod had to go.
type Reclaimed struct {
	Containers uint32 `json:"containers"`
	Images     uint32 `json:"images"`
	// ImageBytes is what the images had on the disk.
	ImageBytes uint64 `json:"imageBytes"`
	// Error is why not all of it was.
	Error string `json:"error,omitempty"`
}

// PodName names a pod.
type PodName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

// Candidate is a pod as it was ranked.
type Candidate struct {
	PodName
	Usage    int64 `json:"usage"`
	Request  int64 `json:"request"`
	Exceeds  bool  `json:"exceeds,omitempty"`
	Priority int32 `json:"priority"`
	// Not is why it was not to go, whatever its figures.
	Not string `json:"not,omitempty"`
}

// shownAt is what is shown of s at a time: no more than anybody reads.
func (s *Shortages) shownAt(now time.Time) *Shortages {
	out := &Shortages{Measured: s.Measured, Began: s.Began, Stale: s.Measured != nil && now.Sub(*s.Measured) >= silent}
	out.Short = append([]Shortage{}, s.Short[:min(len(s.Short), mostShortages)]...) // never null
	out.Decisions = append([]Decision{}, s.Decisions[:min(len(s.Decisions), mostDecisions)]...)
	out.More = s.More + len(s.Decisions) - len(out.Decisions)
	for i := range out.Decisions {
		out.Decisions[i].bound()
	}
	return out
}

func (d *Decision) bound() {
	all := d.Candidates
	d.Candidates = append([]Candidate{}, all[:min(len(all), mostCandidates)]...)
	d.More += uint32(len(all) - len(d.Candidates)) //nolint:gosec // A count of pods.
	d.Why = bounded(d.Why)
	for i := range d.Candidates {
		d.Candidates[i].Not = bounded(d.Candidates[i].Not)
	}
	if r := d.Reclaimed; r != nil {
		d.Reclaimed = &Reclaimed{r.Containers, r.Images, r.ImageBytes, bounded(r.Error)}
	}
}

func bounded(words string) string {
	if len(words) <= mostWords {
		return words
	}
	return strings.ToValidUTF8(words[:mostWords], "") + " …"
}
