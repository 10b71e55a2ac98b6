package disk

import "time"

// turns are directories that wait to be measured. Urgent ones come first; of both kinds,
// the next is of the namespace whose directories have taken the least time. It belongs to
// who holds Trees' lock.
type turns struct {
	// urgent and others are by namespace, none is empty.
	urgent, others map[string][]Directory
	// spent is the time that a namespace's directories have taken, and least what the one
	// that came last had: who comes again has no claim on what it has not used.
	spent map[string]time.Duration
	least time.Duration
}

func newTurns() turns {
	return turns{urgent: map[string][]Directory{}, others: map[string][]Directory{}, spent: map[string]time.Duration{}}
}

// push puts a directory off until its turn.
func (q *turns) push(dir Directory, urgent bool) {
	whose := dir.Namespace
	if len(q.urgent[whose])+len(q.others[whose]) == 0 {
		q.spent[whose] = max(q.spent[whose], q.least)
	}
	if urgent {
		q.urgent[whose] = append(q.urgent[whose], dir)
		return
	}
	q.others[whose] = append(q.others[whose], dir)
}

// pop takes the next one, if there is any.
func (q *turns) pop() (dir Directory, urgent, ok bool) {
	from := q.urgent
	if urgent = len(from) > 0; !urgent {
		from = q.others
	}
	if len(from) == 0 {
		clear(q.spent)
		q.least = 0
		return Directory{}, false, false
	}
	first := true
	var next string
	for whose := range from {
		if spent := q.spent[whose]; first || spent < q.spent[next] || spent == q.spent[next] && whose < next {
			first, next = false, whose
		}
	}
	q.least = q.spent[next]
	queue := from[next]
	if from[next] = queue[1:]; len(queue) == 1 {
		delete(from, next)
	}
	return queue[0], urgent, true
}
