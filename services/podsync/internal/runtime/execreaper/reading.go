package execreaper

// reading is one reading of the node's processes, for all looks that waited for it
// when it began: there are tens of thousands, and whoever has sessions in many
// containers must not make a neighbour's wait for a reading of each.
type reading struct {
	done chan struct{}
	// looks are those that it is for; under Book.mu until it begins.
	looks []*look

	of  map[string][]Process
	err error
}

// read returns the processes of l's container, from a reading that begins later.
func (b *Book) read(l *look) ([]Process, error) {
	b.mu.Lock()
	r := b.next
	if r == nil {
		r = &reading{done: make(chan struct{})}
		go b.readAll(r, b.last)
		b.next, b.last = r, r.done
	}
	r.looks = append(r.looks, l)
	b.mu.Unlock()
	<-r.done
	return r.of[l.id], r.err
}

// readAll reads once the last reading is over.
func (b *Book) readAll(r *reading, last <-chan struct{}) {
	defer close(r.done)
	if last != nil {
		<-last
	}
	b.mu.Lock()
	b.next = nil
	ids := make([]string, 0, len(r.looks))
	for _, l := range r.looks {
		l.at.next = nil // who asks from now on has another
		ids = append(ids, l.id)
	}
	b.mu.Unlock()
	r.of, r.err = b.deps.Host.Containers(ids)
}
