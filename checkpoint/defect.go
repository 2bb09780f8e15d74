package checkpoint

// defect is what a machine is to do wrong, so that tests can show that they
// would notice. It is 0 but there.
type defect int

const (
	defectNone      defect = iota
	defectEager            // commit before all have stored
	defectLateUndo         // abort after a commit
	defectDeadMan          // undo by oneself although peers may have been terminated
	defectNoFence          // look into the ledger without fencing first
	defectForget           // undo without unlocking
	defectEarlyKill        // terminate before the commit is durable
	defectRelock           // enter an epoch that was left once more
)
