package control

// Survey is what is measured of a node regularly: its containers and flows as Node lists them, and what has happened so
// far. A container and its flows are of one moment, several containers are not.
type Survey struct {
	Containers []Container
	Flows      []Flow
	// Events is how often each type of event has happened since the agent began, repetitions included.
	Events map[string]uint64
	// EventsDropped is how many the log has dropped to make room.
	EventsDropped uint64
}
