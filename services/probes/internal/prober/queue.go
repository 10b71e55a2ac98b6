package prober

import "container/heap"

// queue is a heap of probes by due time.
type queue []*entry

var _ heap.Interface = (*queue)(nil)

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	p := x.(*entry)
	p.index = len(*q)
	*q = append(*q, p)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	p.index = -1
	return p
}
