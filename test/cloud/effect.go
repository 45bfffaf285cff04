package cloud

import (
	"net/netip"
	"sync"
)

// A Route is one entry as packets feel it, whatever the API calls its next hop.
type Route struct {
	// Table is the id of the table that has the entry; "" is the whole VPC.
	Table string
	// Destination is the range of the packets.
	Destination netip.Prefix
	// Via is the address of the machine they go to. The zero Addr drops them.
	Via netip.Addr
}

// effects puts tables into effect one after the other.
type effects struct {
	order   sync.Mutex
	last    int
	running sync.Mutex
	shown   int
}

// Effect lets a new table take effect after EffectDelay, before it returns when
// that is 0. The emulator calls it after every change, with the whole table, in
// the order of the changes (under the lock that guards them).
func (f *Frame) Effect(routes []Route) {
	if f.Program == nil {
		return
	}
	f.order.Lock()
	f.last++
	turn := f.last
	f.order.Unlock()
	show := func() {
		f.running.Lock()
		defer f.running.Unlock()
		if turn > f.shown { // else a newer table overtook this one
			f.shown = turn
			f.Program(routes)
		}
	}
	if f.EffectDelay <= 0 {
		show()
		return
	}
	f.Clock.AfterFunc(f.EffectDelay, show)
}
