package plan

// putOff says whether nothing of the pod is to be started yet, though it was admitted.
func (p *planner) putOff() bool {
	off := p.s.PutOff
	if off == nil || !p.s.Now.Before(off.Until) {
		return false
	}
	p.wake(off.Until)
	p.wait("pressure", "", off.Reason, off.Advice, off.Until)
	return true
}
