"""Which script a character has, as SentencePiece's trainer sees it.

SentencePiece has the scripts of Unicode 9.0 (Scripts.txt), with two changes: a character that
Unicode 9.0 doesn't assign counts as Common, and Hiragana, Katakana and "ー" count as Han, since
one Japanese word can have all of them.  So the scripts don't depend on the installed `regex`.
"""

from __future__ import annotations

import base64
import bisect
import functools
import itertools
import zlib

COMMON, INHERITED = 0, 1  # the numbers of these two; other scripts have others

# The runs of characters with one script, packed: first the numbers of their scripts, then their
# lengths in three bytes, all the low ones first.
_RUNS = """
c-rlj&2v;m5Wu^8X5RO{x0`G>$tKy|gw4n1YZLOZ37|;`34~w>AP^$P0E!9-
h$wywD0)z<JX)SOSd{()R%v<ADlN|*#G422R$1j8?RlHsB!&QoXmLpY^5)Ig>+YHEnGF!EMgU4!gOUasV3x5$>}8
Mv+X2RQ!Gj3nGfTq(1`tGHePZ{a;vQ7qgZO=@T8{**PxTsV)}fY3J^*#AsBeHJQfat98K$ubwlG<y8Csw<q%9=3f
<|aB(E%OMS){ECy1JnRLZ0dAh2E{e^cm2@eanzENHSb<lkSo&tH7niLavvRtRDs#QlN_K9Mr5`m;r@lFcrRWsVyM
IPay@V@{}QFcpDhoOLlg^Bk(8_zzB?t!e|P{H1)8vNc}jB?^<DxKar5x1-
l>xCB;<E_K@Y2=d~MQMVrzyQ)MPrQQU+{*v;i0n1a194b%HzA3Qd*ANIp6a{vx9he94-
<}e&SaukljoaPuDn}>OL;y5r*!fF<tf<@*8oHz+5Pr<3DLGuip4zb}`&2#WPbA~w!=a?FJfjM910(0@6yclwcd5O
8q<ltrIm5?jUtMJ+quZO&`#GCLIY=^f)-
eInmxfXIgqyX=hDW#i)_d*8B++f}hu{VGfDaO{ul14I*0jg?D<M*vfQT(Dr!Kse?hbZ`o<A@)<L0@7Enb=B50t;5
1Qm#S+eV&m)$4%lnZ1QmjiJq<gcGXP*))S6Zp_TBl;Q+-
bDbXUL1e&Z?lFfB#p(Iq4Py!8E93u@ODsBsbCc9xqUBMTwz~Z<fhwFkckmQ+Yin3lkru7PoLcJ9Zp}|TdPe%5e6$
(!(-9y^<D#bpru4;@5{gx)7V8f1Ol?EKGvN*(k^AHj*S&!vNmxhc|lKrg^HS8i1d&9pSh?e1y@V2S?W;U(Y!v-
b0s5ex%BfJ2`Rf8OonLU`5t(fINn39@rw(#<iI{24qicPXzE_3`emRkW1b2&~Kku;9*)pWH%ObgeHpy^h*agVhlc
?;wij-id)=ooWWhnjTK=t++w?4?M#oib^-f-?0)BiKML&-
N)8+b6rkXul<gL?A?uU9c>{{&FM?cG_rB*sG+9;3N(z1qrs^!jFYTNz(u?!zTkPIZ^Bgo#Jn!k-
o+O{V~>IEO!MUk9o{oR%UUfLnirHZF4MFk-3`0W8UpNYpt~<SyCO*!Nqx$Dkm0Vbpz4#So%O7=f3!A@9p-
FMZxarj4#f$pB7oPM(ob`kTq#}MvA%-
vo1D>8FD10v0(e*wvX4SYTh6wwB4ciX||hp?Q^eM_R8~grp5G>N}`UGPE6-g>}<s-
4Yv6djrugI@PjO$AlJbzN{dhvi7g%`v65#8<Tt%Bu|I~#@p^;k4KSVc>QskHu{Y9hpY2JpsjSS(Hml#oPYQOzu|7
38T%G!i5vRMINn3Ug>r$#-
U{c{|rbfo8TXK)izB(zSZP{iflWCQnJt)isS(VDFFr{bCP8IqheWtOPzBVIM0q*o`O~)8O-
)psJD2j2n0z1dTeBy|?#&+cxa_w2tCq;4g3-#f=4sg>R%egg3Elm@yV?-
*4EN3t&0vTOA<l%S2rj1?bI}IYkTKuWcPG3Of{_t)7=iOfqn`z|jUrdqVOgawRs8W>|C)|8AHj3##D*uYmowF(;Y
?EX2lZaVlrsToNZ$1hX2D2u{DD>)=A1RufR;=l!<a7#;79Z2_x-yC{eQy=}OQKu)_{ngBgE78w6vp~F@BaQZH{kw
8*B4U1{~3jqg0LwMmppJp=%M#;h48hy(Qef8|5$S4a=1emjkr+@{_nQ(!Sv$)l?negC6)s1$bcH}nxo}Rs0L~Vx7
;5u*HrkOD!0vYO>ThK0wT9SUxSGp8E|Lw%Gs1n*_2ITae@8;bT-=)
"""


@functools.cache
def _runs() -> tuple[list[int], bytes]:
    """Unpack where each run begins, and the script of each."""
    columns = zlib.decompress(base64.b85decode(_RUNS.replace("\n", "")))
    n = len(columns) // 4
    scripts, *sizes = (columns[at : at + n] for at in range(0, 4 * n, n))
    lengths = (low | middle << 8 | high << 16 for low, middle, high in zip(*sizes))
    return list(itertools.accumulate(lengths, initial=0))[:-1], scripts


@functools.lru_cache(maxsize=2**16)
def script_of(char: str) -> int:
    """Return the number of a character's script.

    >>> script_of("a") == script_of("é") != script_of("б")
    True
    >>> script_of("カ") == script_of("中"), script_of("1") == script_of("-") == COMMON
    (True, True)
    """
    starts, scripts = _runs()
    return scripts[bisect.bisect_right(starts, ord(char)) - 1]
