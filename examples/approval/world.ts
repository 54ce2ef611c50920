/** What stands for other systems: each honours the key that it is called with, so a repeat has no second effect. */
const seen = new Set<string>();

export async function sendMail(text: string, idempotencyKey: string): Promise<{ sent: boolean }> {
  if (!seen.has(idempotencyKey)) console.log(`mail: ${text}`);
  seen.add(idempotencyKey);
  return { sent: true };
}

export async function pay(order: string, cents: number, idempotencyKey: string): Promise<{ payment: string }> {
  if (!seen.has(idempotencyKey)) console.log(`paid: ${cents} for ${order}`);
  seen.add(idempotencyKey);
  return { payment: `P-${order}` };
}
