package node

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/ipam"
	"github.com/vpcroute/vpcroute/pkg/netconf"
)

// Addresses counts the node's addresses; each stands for one pod, which has one
// of every family.
type Addresses struct {
	// Usable is how many the podCIDRs have for pods.
	Usable int `json:"usable"`
	// Claimed is how many are carried by a pod's veth.
	Claimed int `json:"claimed"`
	// Cooling is how many were released so lately that others are preferred.
	Cooling int `json:"cooling"`
	// Orphaned is how many of the claimed have no pod's name on them: their
	// attachment was broken off and its DEL has not come yet.
	Orphaned int `json:"orphaned"`
}

// CountAddresses reads the ledger in the calling thread's network namespace.
// hintDir is the plugin's state directory.
func CountAddresses(bridgeName, hintDir string, podCIDRs []netip.Prefix) (Addresses, error) {
	pool, err := ipam.New(podCIDRs, nil)
	if err != nil {
		return Addresses{}, err
	}
	br, err := bridge.Open(bridgeName)
	if err != nil {
		return Addresses{}, err
	}
	defer br.Close()
	entries, _, err := br.Ledger()
	if err != nil {
		return Addresses{}, fmt.Errorf("read the ledger: %w", err)
	}
	count := Addresses{Usable: pool.Capacity()}
	claimed := map[int]bool{}
	for _, e := range entries {
		for _, a := range e.Addresses {
			position, ok := pool.Position(a)
			if !ok || claimed[position] {
				continue
			}
			claimed[position] = true
			count.Claimed++
			if e.Alias == "" {
				count.Orphaned++
			}
		}
	}
	count.Cooling = cooling(pool, hintDir, claimed)
	return count, nil
}

// cooling counts the positions whose stamp is young and that nobody claims. The
// stamps are hints: without them nothing is cooling.
func cooling(pool *ipam.Pool, hintDir string, claimed map[int]bool) int {
	hints, err := ipam.OpenHints(hintDir, pool)
	if hints == nil || err != nil {
		return 0
	}
	defer hints.Close()
	n, now := 0, sinceBoot()
	for position, stamp := range hints.Stamps() {
		if stamp > 0 && stamp <= now && now-stamp < netconf.DefaultCoolDown && !claimed[position] && pool.At(position) != nil {
			n++
		}
	}
	return n
}

// sinceBoot is the clock of the hints.
func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails for an unknown clock only
	return time.Duration(t.Nano())
}
