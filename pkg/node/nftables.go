package node

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
)

const (
	nftTableName = "vpcroute"
	nftChainName = "egress" // a word of the nft language would make the listing unreadable to nft
)

// NFTables keeps the masquerade rules in one table of our own, "inet vpcroute",
// over netlink; no program on the host is needed. Nobody else's table is read
// or written. It needs Linux 5.2, the first to translate addresses in an inet
// table.
type NFTables struct {
	conn *nftables.Conn
}

// NewNFTables returns the rules of the calling thread's network namespace.
func NewNFTables() (*NFTables, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open nftables: %w", err)
	}
	return &NFTables{conn: conn}, nil
}

// Ensure brings the rules to what m says, in one transaction, and reports
// whether anything had to be changed. Packets of established connections are
// not affected. An invalid m changes nothing.
func (n *NFTables) Ensure(m Masquerade) (changed bool, err error) {
	if err := m.Validate(); err != nil {
		return false, err
	}
	want := newRuleset(m)
	if same, err := n.holds(want); same || err != nil {
		return false, err
	}
	if err := n.write(want); err != nil {
		return false, fmt.Errorf("write nftables table %s: %w", nftTableName, err)
	}
	return true, nil
}

// Remove deletes our table; it is not an error if it is gone already.
func (n *NFTables) Remove() error {
	n.conn.AddTable(table()) // so that deleting it cannot fail
	n.conn.DelTable(table())
	if err := n.conn.Flush(); err != nil {
		return fmt.Errorf("delete nftables table %s: %w", nftTableName, err)
	}
	return nil
}

// A ruleset is the content of our table.
type ruleset struct {
	chain *nftables.Chain
	sets  []namedSet
	rules [][]expr.Any
	// mark tells this ruleset's rules from those of any other.
	mark string
}

type namedSet struct {
	set      *nftables.Set
	elements []nftables.SetElement
}

func table() *nftables.Table {
	return &nftables.Table{Name: nftTableName, Family: nftables.TableFamilyINet}
}

func newRuleset(m Masquerade) ruleset {
	accept := nftables.ChainPolicyAccept
	r := ruleset{chain: &nftables.Chain{
		Name: nftChainName, Table: table(), Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource, Policy: &accept,
	}}
	for _, is4 := range []bool{true, false} {
		if len(ofFamily(m.PodCIDRs, is4)) == 0 {
			continue
		}
		pods := Masquerade{Keep: m.PodCIDRs}
		podSet := newSet("pods", is4, pods.keepIntervals(is4))
		keepSet := newSet("keep", is4, m.keepIntervals(is4))
		r.sets = append(r.sets, podSet, keepSet)
		r.rules = append(r.rules, masqueradeRule(is4, m.Bridge, podSet.set, keepSet.set))
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%v", m))
	r.mark = fmt.Sprintf("vpcroute %x", sum[:8])
	return r
}

func newSet(name string, is4 bool, intervals []interval) namedSet {
	s := &nftables.Set{Table: table(), Name: name + "6", KeyType: nftables.TypeIP6Addr, Interval: true}
	if is4 {
		s.Name, s.KeyType = name+"4", nftables.TypeIPAddr
	}
	var elements []nftables.SetElement
	for _, i := range intervals {
		elements = append(elements, nftables.SetElement{Key: i.first.AsSlice()})
		// An interval without an end reaches to the last address.
		if end := i.last.Next(); end.IsValid() {
			elements = append(elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return namedSet{s, elements}
}

// masqueradeRule matches what pods send out of the node to a destination that
// does not keep the pod's address. Ports are chosen at random, since two pods'
// connections racing for one port would lose one of them.
func masqueradeRule(is4 bool, bridge string, pods, keep *nftables.Set) []expr.Any {
	proto, src, dst, size := byte(unix.NFPROTO_IPV6), uint32(8), uint32(24), uint32(16)
	if is4 {
		proto, src, dst, size = unix.NFPROTO_IPV4, 12, 16, 4
	}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, bridge)
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: src, Len: size},
		&expr.Lookup{SourceRegister: 1, SetName: pods.Name, SetID: pods.ID},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: dst, Len: size},
		&expr.Lookup{SourceRegister: 1, SetName: keep.Name, SetID: keep.ID, Invert: true},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: name},
		&expr.Masq{FullyRandom: true},
	}
}

// write replaces our table by the ruleset: one transaction, so no packet ever
// sees half of it.
func (n *NFTables) write(r ruleset) error {
	n.conn.AddTable(table())
	n.conn.DelTable(table())
	n.conn.AddTable(table())
	n.conn.AddChain(r.chain)
	for _, s := range r.sets {
		if err := n.conn.AddSet(s.set, s.elements); err != nil {
			return err
		}
	}
	for _, exprs := range r.rules {
		n.conn.AddRule(&nftables.Rule{
			Table: table(), Chain: r.chain, Exprs: exprs,
			UserData: userdata.AppendString(nil, userdata.TypeComment, r.mark),
		})
	}
	return n.conn.Flush()
}

// holds is true when our table is there and is the ruleset. It lists what is
// there instead of asking for it by name: the library's error for an absent
// object cannot be told from another.
func (n *NFTables) holds(r ruleset) (bool, error) {
	chains, err := n.conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("list nftables chains: %w", err)
	}
	i := slices.IndexFunc(chains, func(c *nftables.Chain) bool {
		return c.Table.Name == nftTableName && c.Name == nftChainName
	})
	if i < 0 || chains[i].Hooknum == nil || *chains[i].Hooknum != *r.chain.Hooknum {
		return false, nil
	}
	rules, err := n.conn.GetRules(table(), chains[i])
	if err != nil {
		return false, fmt.Errorf("read nftables rules: %w", err)
	}
	unmarked := func(rule *nftables.Rule) bool {
		mark, _ := userdata.GetString(rule.UserData, userdata.TypeComment)
		return mark != r.mark
	}
	if len(rules) != len(r.rules) || slices.ContainsFunc(rules, unmarked) {
		return false, nil
	}
	return n.setsHold(r.sets)
}

// setsHold is true when the sets have the elements wanted. The rules that use
// them keep the kernel from letting a set go.
func (n *NFTables) setsHold(sets []namedSet) (bool, error) {
	for _, s := range sets {
		got, err := n.conn.GetSetElements(s.set)
		if err != nil {
			return false, fmt.Errorf("read nftables set %s: %w", s.set.Name, err)
		}
		if !slices.EqualFunc(inOrder(got), inOrder(s.elements), sameElement) {
			return false, nil
		}
	}
	return true, nil
}

func inOrder(elements []nftables.SetElement) []nftables.SetElement {
	return slices.SortedFunc(slices.Values(elements), func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
}

func sameElement(a, b nftables.SetElement) bool {
	return bytes.Equal(a.Key, b.Key) && a.IntervalEnd == b.IntervalEnd
}
