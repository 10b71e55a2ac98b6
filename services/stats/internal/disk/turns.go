package disk

import "time"

// turns are directories that wait to be measured. The next one is of the namespace whose
// directories have taken the least time, and there an urgent one and another come by turns: whoever
// has many renewed leaves all others theirs, and his own. Where a disk is short all urgent ones
// come first. It belongs to who holds Trees' lock.
type turns struct {
	// urgent and others are by namespace, none is empty; hurried are those of which an urgent one
	// came last.
	urgent, others map[string][]Directory
	hurried        map[string]bool
	// spent is the time that a namespace's directories have taken, and least what the one
	// that came last had: who comes again has no claim on what it has not used.
	spent map[string]time.Duration
	least time.Duration
}

func newTurns() turns {
	return turns{urgent: map[string][]Directory{}, others: map[string][]Directory{}, hurried: map[string]bool{}, spent: map[string]time.Duration{}}
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

// pop takes the next one, if there is any; pressed: of the urgent ones first.
func (q *turns) pop(pressed bool) (dir Directory, urgent, ok bool) {
	from := []map[string][]Directory{q.urgent}
	if !pressed || len(q.urgent) == 0 {
		from = append(from, q.others)
	}
	var next string
	for _, queues := range from {
		for whose := range queues {
			if spent := q.spent[whose]; !ok || spent < q.spent[next] || spent == q.spent[next] && whose < next {
				ok, next = true, whose
			}
		}
	}
	if !ok {
		clear(q.spent)
		clear(q.hurried)
		q.least = 0
		return Directory{}, false, false
	}
	q.least = q.spent[next]
	urgent = len(q.urgent[next]) > 0 && (len(from) == 1 || len(q.others[next]) == 0 || !q.hurried[next])
	q.hurried[next] = urgent
	queues := q.others
	if urgent {
		queues = q.urgent
	}
	queue := queues[next]
	if queues[next] = queue[1:]; len(queue) == 1 {
		delete(queues, next)
	}
	return queue[0], urgent, true
}
