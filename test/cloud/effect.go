package cloud

import (
	"net/netip"
	"slices"
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

// Programmer returns a Program that keeps a kernel's table in step: it calls put
// for what is new or leads elsewhere, and remove for what is gone or drops its
// packets. One table stands for all, so of several routes to one range the first
// counts. What goes wrong is told to failed.
func Programmer(put func(netip.Prefix, netip.Addr) error, remove func(netip.Prefix) error, failed func(error)) func([]Route) {
	there := map[netip.Prefix]netip.Addr{}
	tell := func(err error) {
		if err != nil {
			failed(err)
		}
	}
	return func(routes []Route) {
		want := map[netip.Prefix]netip.Addr{}
		for _, r := range slices.Backward(routes) {
			if r.Via.IsValid() {
				want[r.Destination] = r.Via
			}
		}
		for destination, via := range want {
			if there[destination] != via {
				tell(put(destination, via))
			}
		}
		for destination := range there {
			if !want[destination].IsValid() {
				tell(remove(destination))
			}
		}
		there = want
	}
}
