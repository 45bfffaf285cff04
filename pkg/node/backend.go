package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/coreos/go-iptables/iptables"
	"github.com/google/nftables"
)

// A Backend is a packet filter of the Linux kernel.
type Backend string

// The back ends. IPTablesNFT's rules live in nftables tables, but only its own
// program may write to those.
const (
	BackendNFTables    Backend = "nftables"
	BackendIPTables    Backend = "iptables-legacy"
	BackendIPTablesNFT Backend = "iptables-nft"
)

// FilterFacts is what was found of the host's packet filter, leaving our own
// rules out.
type FilterFacts struct {
	// LegacyRules lists the legacy iptables tables that hold rules or a drop
	// policy, for example "ip filter".
	LegacyRules []string `json:"legacyRules,omitempty"`
	// LegacyUnread lists the families whose legacy tables are in use though no
	// program is there to tell what they hold.
	LegacyUnread []string `json:"legacyUnread,omitempty"`
	// NFTables lists the nftables tables, for example "inet firewalld".
	NFTables []string `json:"nftables,omitempty"`
	// Drops lists the chains that drop forwarded packets by policy, for example
	// "nftables inet firewalld filter_FORWARD".
	Drops []string `json:"drops,omitempty"`
}

// Backend returns the back end that the host uses already, and a warning when
// it uses both: then packets pass both rule sets, and ours go to nftables, which
// needs no program of the host. They go there too, with a warning, where legacy
// rules cannot be read.
func (f FilterFacts) Backend() (b Backend, warning string) {
	switch {
	case len(f.LegacyUnread) > 0 && len(f.LegacyRules) == 0:
		return BackendNFTables, fmt.Sprintf("the host has legacy iptables tables (%s) and iptables-legacy is not there to read them: if one of them drops forwarded packets, accept those of pods in it",
			strings.Join(f.LegacyUnread, ", "))
	case len(f.LegacyRules) == 0:
		return BackendNFTables, ""
	case len(f.NFTables) == 0:
		return BackendIPTables, ""
	}
	return BackendNFTables, fmt.Sprintf("the host has rules in legacy iptables (%s) and in nftables (%s): every packet passes both; move them into one",
		strings.Join(f.LegacyRules, ", "), strings.Join(f.NFTables, ", "))
}

// ReadFilter finds out what packet filter the calling thread's network
// namespace uses. procNet is "/proc/net", where the kernel lists the legacy
// tables in use; their programs are asked only if it lists any.
func ReadFilter(procNet string) (FilterFacts, error) {
	var facts FilterFacts
	err := errors.Join(
		facts.readNFTables(),
		facts.readLegacy(procNet+"/ip_tables_names", "ip", iptables.ProtocolIPv4, "iptables-legacy"),
		facts.readLegacy(procNet+"/ip6_tables_names", "ip6", iptables.ProtocolIPv6, "ip6tables-legacy"),
	)
	return facts, err
}

func (f *FilterFacts) readNFTables() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		return fmt.Errorf("list nftables chains: %w", err)
	}
	for _, c := range chains {
		table := familyName(c.Table.Family) + " " + c.Table.Name
		if c.Table.Name == nftTableName {
			continue
		}
		if !slices.Contains(f.NFTables, table) {
			f.NFTables = append(f.NFTables, table)
		}
		if dropsForwarded(c) {
			f.Drops = append(f.Drops, "nftables "+table+" "+c.Name)
		}
	}
	return nil
}

func dropsForwarded(c *nftables.Chain) bool {
	ip := c.Table.Family == nftables.TableFamilyIPv4 || c.Table.Family == nftables.TableFamilyIPv6 || c.Table.Family == nftables.TableFamilyINet
	return ip && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookForward && c.Policy != nil && *c.Policy == nftables.ChainPolicyDrop
}

func familyName(f nftables.TableFamily) string {
	names := map[nftables.TableFamily]string{
		nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6",
		nftables.TableFamilyARP: "arp", nftables.TableFamilyNetdev: "netdev", nftables.TableFamilyBridge: "bridge",
	}
	return names[f]
}

// readLegacy looks into each legacy table that the kernel has in use; a table
// that merely exists, because somebody listed it once, is not a rule.
func (f *FilterFacts) readLegacy(names, family string, proto iptables.Protocol, program string) error {
	tables, err := os.ReadFile(names)
	if errors.Is(err, fs.ErrNotExist) || len(tables) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := exec.LookPath(program); errors.Is(err, exec.ErrNotFound) {
		f.LegacyUnread = append(f.LegacyUnread, family)
		return nil
	}
	ipt, err := iptables.New(iptables.IPFamily(proto), iptables.Path(program))
	if err != nil {
		return fmt.Errorf("legacy %s tables are in use (%s) but %s cannot be run: %w", family, strings.Join(strings.Fields(string(tables)), ", "), program, err)
	}
	for table := range strings.FieldsSeq(string(tables)) {
		if err := f.readLegacyTable(ipt, family, table); err != nil {
			return fmt.Errorf("read legacy table %s %s: %w", family, table, err)
		}
	}
	return nil
}

func (f *FilterFacts) readLegacyTable(ipt *iptables.IPTables, family, table string) error {
	chains, err := ipt.ListChains(table)
	if err != nil {
		return err
	}
	used := false
	for _, chain := range chains {
		if strings.HasPrefix(chain, chainPrefix) {
			continue
		}
		lines, err := ipt.List(table, chain)
		if err != nil {
			return err
		}
		dropped := lines[0] == "-P "+chain+" DROP"
		if dropped && chain == "FORWARD" {
			f.Drops = append(f.Drops, "iptables-legacy "+family+" "+table+" "+chain)
		}
		used = used || dropped || slices.ContainsFunc(lines[1:], func(rule string) bool { return !strings.Contains(rule, "-j "+chainPrefix) })
	}
	if used {
		f.LegacyRules = append(f.LegacyRules, family+" "+table)
	}
	return nil
}
