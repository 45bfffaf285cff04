package main

import (
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/ipam"
	"github.com/vpcroute/vpcroute/pkg/netconf"
)

// patience is how many claims may be refused, one after the other, before the
// ledger is listed: about what the list costs.
const patience = 16

// A search proposes addresses for a new port, one candidate after the other.
type search struct {
	conf   *netconf.Config
	pool   *ipam.Pool
	hints  *ipam.Hints
	bridge *bridge.Bridge

	queue   []ipam.Aged
	tried   map[int]bool
	listed  bool
	warning error
	hot     error // says so when the candidate has not rested for the cool-down
}

// next returns the candidate to try now; refused says which address of the one
// before is another port's.
func (s *search) next(refused error) (bridge.Candidate, error) {
	if len(s.conf.IPs) > 0 {
		return s.wanted(refused)
	}
	if s.tried == nil {
		s.tried = map[int]bool{}
	}
	for {
		if len(s.queue) == 0 {
			if err := s.refill(); err != nil {
				return bridge.Candidate{}, err
			}
		}
		first := s.queue[0]
		s.queue = s.queue[1:]
		stamp := s.hints.Stamp(first.Position)
		// Another call has used it since this one read the hints: it is put off,
		// not given up, and the next round looks at it again.
		if stamp > first.Stamp && stamp <= sinceBoot() && len(s.queue) > 0 {
			continue
		}
		s.judge(stamp)
		s.use(first.Position)
		return s.candidate(first.Position), nil
	}
}

// judge notes when an address is proposed that was in use a moment ago.
func (s *search) judge(used ipam.Stamp) {
	s.hot = nil
	if used == 0 {
		return
	}
	if rested := sinceBoot() - used; rested >= 0 && rested < s.conf.CoolDown {
		s.hot = fmt.Errorf("the address was in use %v ago, and its coolDown is %v: none has rested longer", rested.Round(time.Millisecond), s.conf.CoolDown)
	}
}

// refill finds the next positions to try, and before a second round which ones
// need not be tried.
func (s *search) refill() error {
	if len(s.tried) > 0 && !s.listed {
		if err := s.list(); err != nil {
			return err
		}
	}
	s.queue = s.pool.Longest(patience, s.hints.Stamps(), sinceBoot(), func(i int) bool { return s.tried[i] })
	if len(s.queue) == 0 {
		return failure(codeExhausted, fmt.Errorf("no address is free in %v: all %d are in use", s.conf.PodCIDRs, s.pool.Capacity()),
			"lower max-pods of this node, or give it a larger podCIDR")
	}
	return nil
}

// list marks what the ledger holds as tried, and as in use for those who come
// after.
func (s *search) list() error {
	s.listed = true
	entries, _, err := s.bridge.Ledger()
	if err != nil {
		return err
	}
	for _, e := range entries {
		for _, a := range e.Addresses {
			if position, ok := s.pool.Position(a); ok {
				s.use(position)
			}
		}
	}
	return nil
}

// use notes before the attempt that a position is being used, so that others do
// not try it too.
func (s *search) use(position int) {
	s.tried[position] = true
	now := sinceBoot()
	if err := s.hints.Touch(position, now); err != nil && s.warning == nil {
		s.warning = fmt.Errorf("note the use: %w", err)
	}
}

func (s *search) candidate(position int) bridge.Candidate {
	c := bridge.Candidate{Index: uint32(position)}
	for _, a := range s.pool.At(position) {
		c.Addresses = append(c.Addresses, bridge.Address(a))
	}
	return c
}

// wanted returns the addresses the runtime asks for, with their partners in
// families it does not mention. There is no second choice.
func (s *search) wanted(refused error) (bridge.Candidate, error) {
	if refused != nil {
		return bridge.Candidate{}, failure(codeTaken, fmt.Errorf("runtimeConfig.ips: %w", refused),
			"ip link show ADDRESS tells whose it is; an IPv6 address is spelled with - for :")
	}
	s.tried = map[int]bool{}
	c := bridge.Candidate{}
	for _, a := range s.conf.IPs {
		address, ok := s.pool.For(a)
		if !ok {
			return c, failure(types.ErrInvalidNetworkConfig, fmt.Errorf("runtimeConfig.ips: %s is a gateway, a range's first or last address, or excluded", a),
				"ask for another address of podCIDRs")
		}
		c.Addresses = append(c.Addresses, bridge.Address(address))
	}
	return s.completed(c)
}

// completed adds the partners to wanted addresses and puts them in order.
func (s *search) completed(c bridge.Candidate) (bridge.Candidate, error) {
	position, ok := s.pool.Position(c.Addresses[0].Prefix.Addr())
	if ok {
		c.Index = uint32(position)
		s.use(position)
	}
	if len(c.Addresses) < s.pool.Families() {
		partners := s.pool.At(position)
		if !ok || partners == nil {
			return c, failure(types.ErrInvalidNetworkConfig, fmt.Errorf("runtimeConfig.ips: %s has no partner in the other family", s.conf.IPs[0]),
				"ask for an address of each family")
		}
		for _, p := range partners {
			if p.Prefix.Addr().Is4() != s.conf.IPs[0].Is4() {
				c.Addresses = append(c.Addresses, bridge.Address(p))
			}
		}
	}
	if len(c.Addresses) == 2 && !c.Addresses[0].Prefix.Addr().Is4() {
		c.Addresses[0], c.Addresses[1] = c.Addresses[1], c.Addresses[0]
	}
	return c, nil
}
