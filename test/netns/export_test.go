package netns

// Abandon does what the kernel does when the box's process is killed.
func (b *Box) Abandon() error { return b.lock.Close() }
