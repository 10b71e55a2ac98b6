package podstate

// Decision is what admission decided.
type Decision int

// The decisions.
const (
	// AdmissionPending: not decided yet; nothing is started.
	AdmissionPending Decision = iota
	// Admitted pods run.
	Admitted
	// Rejected pods fail with Reason and Message.
	Rejected
)

// Admission is the answer of admission with its reason.
type Admission struct {
	Decision Decision
	// Reason is empty for Admitted.
	Reason string
	// Message is for people.
	Message string
}
